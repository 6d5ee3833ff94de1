// Errors that end a reader at once, or are collected while it goes on.
#pragma once

#include <filesystem>
#include <functional>
#include <utility>
#include <vector>

#include "bitwright/error.h"
#include "bitwright/options.h"

namespace bw::model {

// The error as a finding. What it says of `root` (a directory, at the beginning of the text) becomes the place.
Finding finding_of(const Error& error, const std::filesystem::path& root);

// Where checks tell what they find. A handle: copies add to the same list.
class Findings {
 public:
  // The first error is thrown.
  Findings() = default;
  // All are added to `list`, which must outlive this. root: the model directory.
  Findings(std::vector<Finding>& list, std::filesystem::path root) : list_(&list), root_(std::move(root)) {}

  // Runs a check and returns true if it did not fail. Bugs and interruptions are thrown in any case.
  template <typename Check>
  bool attempt(const Check& check) const {
    if (list_ == nullptr) {
      check();
      return true;
    }
    try {
      check();
      return true;
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kInternal || error.code() == ErrorCode::kInterrupted) throw;
      list_->push_back(finding_of(error, root_));
      return false;
    }
  }
  // For checks of the layers below: adds an error and returns, or empty where the first error is thrown.
  std::function<void(const Error&)> sink() const {
    if (list_ == nullptr) return {};
    return [*this](const Error& error) { list_->push_back(finding_of(error, root_)); };
  }

  bool any() const { return list_ != nullptr && !list_->empty(); }

 private:
  std::vector<Finding>* list_ = nullptr;
  std::filesystem::path root_;
};

}  // namespace bw::model
