#include "io/parquet.h"

#include "bitwright/error.h"

#ifdef BITWRIGHT_PARQUET

#include <algorithm>
#include <exception>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include <arrow/api.h>
#include <arrow/io/memory.h>
#include <parquet/arrow/reader.h>
#include <parquet/metadata.h>
#include <parquet/schema.h>

#include "base/utf8.h"
#include "io/printable.h"

namespace bw::io {
namespace {

using Batch = std::shared_ptr<arrow::Table>;

[[noreturn]] void fail(const std::string& name, const std::string& what, const std::string& hint = {}) {
  throw Error(ErrorCode::kModel, name + ": " + what, hint);
}

[[noreturn]] void fail_damaged(const std::string& name, std::string what) {
  while (what.ends_with('.')) what.pop_back();
  fail(name, "the parquet file cannot be read: " + printable(what), "get it again");
}

void check(const arrow::Status& status, const std::string& name) {
  if (!status.ok()) fail_damaged(name, status.message());
}

template <typename T>
T value_of(arrow::Result<T> result, const std::string& name) {
  check(result.status(), name);
  return std::move(result).ValueUnsafe();
}

// Arrow before 24 gives results through a pointer.
template <typename Reader>
Batch read_group(Reader& reader, int group, const std::vector<int>& leaves, const std::string& name) {
  if constexpr (requires { reader.ReadRowGroup(group, leaves); }) {
    return value_of(reader.ReadRowGroup(group, leaves), name);
  } else {
    Batch batch;
    check(reader.ReadRowGroup(group, leaves, &batch), name);
    return batch;
  }
}

OrderedJson string_of(std::string_view text, const std::string& where) {
  const size_t zero = text.find('\0');
  if (const auto bad = find_invalid_utf8(text.substr(0, zero))) {
    fail(where, "not valid UTF-8 at byte " + std::to_string(*bad) + " of a string", "convert the text to UTF-8");
  }
  if (zero != std::string_view::npos) fail(where, "a zero byte at byte " + std::to_string(zero) + " of a string");
  return std::string(text);
}

OrderedJson json_of(const arrow::Array& array, int64_t i, const std::string& where);

template <typename List>
OrderedJson list_of(const arrow::Array& array, int64_t i, const std::string& where) {
  const auto& list = static_cast<const List&>(array);
  OrderedJson values = OrderedJson::array();
  for (int64_t at = list.value_offset(i), end = at + list.value_length(i); at < end; ++at) {
    values.push_back(json_of(*list.values(), at, where));
  }
  return values;
}

OrderedJson struct_of(const arrow::Array& array, int64_t i, const std::string& where) {
  const auto& fields = static_cast<const arrow::StructArray&>(array);
  OrderedJson object = OrderedJson::object();
  for (int f = 0; f < fields.num_fields(); ++f) {
    const std::shared_ptr<arrow::Array> field = fields.field(f);
    if (!field->IsNull(i)) object[fields.type()->field(f)->name()] = json_of(*field, i, where);
  }
  return object;
}

// As a JSON parser has it: what is not negative is unsigned.
template <typename Array>
OrderedJson whole(const arrow::Array& array, int64_t i) {
  const auto value = static_cast<const Array&>(array).Value(i);
  return value < 0 ? OrderedJson(static_cast<int64_t>(value)) : OrderedJson(static_cast<uint64_t>(value));
}

template <typename Array>
OrderedJson plain(const arrow::Array& array, int64_t i) {
  return static_cast<const Array&>(array).Value(i);
}

OrderedJson json_of(const arrow::Array& array, int64_t i, const std::string& where) {
  if (array.IsNull(i)) return nullptr;
  switch (array.type_id()) {
    case arrow::Type::STRING:
      return string_of(static_cast<const arrow::StringArray&>(array).GetView(i), where);
    case arrow::Type::LARGE_STRING:
      return string_of(static_cast<const arrow::LargeStringArray&>(array).GetView(i), where);
    case arrow::Type::DICTIONARY: {
      const auto& coded = static_cast<const arrow::DictionaryArray&>(array);
      return json_of(*coded.dictionary(), coded.GetValueIndex(i), where);
    }
    case arrow::Type::LIST:
      return list_of<arrow::ListArray>(array, i, where);
    case arrow::Type::LARGE_LIST:
      return list_of<arrow::LargeListArray>(array, i, where);
    case arrow::Type::STRUCT:
      return struct_of(array, i, where);
    case arrow::Type::BOOL:
      return plain<arrow::BooleanArray>(array, i);
    case arrow::Type::INT8:
      return whole<arrow::Int8Array>(array, i);
    case arrow::Type::INT16:
      return whole<arrow::Int16Array>(array, i);
    case arrow::Type::INT32:
      return whole<arrow::Int32Array>(array, i);
    case arrow::Type::INT64:
      return whole<arrow::Int64Array>(array, i);
    case arrow::Type::UINT8:
      return whole<arrow::UInt8Array>(array, i);
    case arrow::Type::UINT16:
      return whole<arrow::UInt16Array>(array, i);
    case arrow::Type::UINT32:
      return whole<arrow::UInt32Array>(array, i);
    case arrow::Type::UINT64:
      return whole<arrow::UInt64Array>(array, i);
    case arrow::Type::FLOAT:
      return plain<arrow::FloatArray>(array, i);
    case arrow::Type::DOUBLE:
      return plain<arrow::DoubleArray>(array, i);
    default:
      fail(where, "a value of the type " + array.type()->ToString() + " is no text");
  }
}

// The leaves of the schema that belong to the columns.
std::vector<int> leaves_of(const parquet::FileMetaData& metadata, std::span<const std::string_view> columns,
                           const std::string& name) {
  std::vector<int> leaves;
  std::string found;
  for (int i = 0; i < metadata.num_columns(); ++i) {
    const std::string top = metadata.schema()->Column(i)->path()->ToDotVector().front();
    if (std::find(columns.begin(), columns.end(), top) != columns.end()) leaves.push_back(i);
    if (found.find("\"" + top + "\"") == std::string::npos) found += (found.empty() ? "\"" : ", \"") + top + "\"";
  }
  if (!leaves.empty()) return leaves;
  std::string wanted;
  for (const std::string_view column : columns) {
    wanted.append(wanted.empty() ? "\"" : ", \"").append(column).append("\"");
  }
  fail(name, "it has none of the columns " + wanted + ", but " + (found.empty() ? "none at all" : printable(found)),
       "rename the column that holds the text");
}

void visit_batch(const arrow::RecordBatch& batch, const std::string& name, size_t& number,
                 const std::function<void(OrderedJson, size_t)>& visit) {
  for (int64_t i = 0; i < batch.num_rows(); ++i) {
    const std::string where = name + " (row " + std::to_string(++number) + ")";
    OrderedJson row = OrderedJson::object();
    for (int c = 0; c < batch.num_columns(); ++c) {
      const std::shared_ptr<arrow::Array> column = batch.column(c);
      if (!column->IsNull(i)) row[batch.column_name(c)] = json_of(*column, i, where);
    }
    visit(std::move(row), number);
  }
}

}  // namespace

bool reads_parquet() { return true; }

void for_each_parquet_row(std::string_view contents, const std::string& name, std::span<const std::string_view> columns,
                          const std::function<void(OrderedJson row, size_t number)>& visit) {
  try {
    arrow::MemoryPool* pool = arrow::system_memory_pool();  // Arrow's own takes a gigabyte of addresses at once
    parquet::arrow::FileReaderBuilder builder;
    check(builder.Open(std::make_shared<arrow::io::BufferReader>(std::make_shared<arrow::Buffer>(
              reinterpret_cast<const uint8_t*>(contents.data()), static_cast<int64_t>(contents.size())))),
          name);
    std::unique_ptr<parquet::arrow::FileReader> reader;
    check(builder.memory_pool(pool)->Build(&reader), name);
    const std::vector<int> leaves = leaves_of(*reader->parquet_reader()->metadata(), columns, name);
    size_t number = 0;
    for (int group = 0; group < reader->num_row_groups(); ++group) {
      const Batch table = read_group(*reader, group, leaves, name);
      arrow::TableBatchReader batches(*table);
      std::shared_ptr<arrow::RecordBatch> batch;
      for (check(batches.ReadNext(&batch), name); batch; check(batches.ReadNext(&batch), name)) {
        check(batch->ValidateFull(), name);
        visit_batch(*batch, name, number, visit);
      }
    }
  } catch (const Error&) {
    throw;
  } catch (const std::bad_alloc&) {  // told as for every other work
    throw;
  } catch (const std::exception& e) {
    fail_damaged(name, e.what());
  }
}

}  // namespace bw::io

#else

namespace bw::io {

bool reads_parquet() { return false; }

void for_each_parquet_row(std::string_view, const std::string& name, std::span<const std::string_view>,
                          const std::function<void(OrderedJson, size_t)>&) {
  throw Error(
      ErrorCode::kModel, name + ": this program is built without Arrow, so that it reads no parquet",
      "build it with Arrow (docs/calibration.md), or convert the file to .jsonl with one {\"text\": ...} a line");
}

}  // namespace bw::io

#endif
