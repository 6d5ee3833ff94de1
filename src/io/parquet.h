// Rows of parquet files, where this program is built with Arrow.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "io/json.h"

namespace bw::io {

// Whether this program can read parquet.
bool reads_parquet();

// Calls visit(row, number counted from 1) for every row of a parquet file's contents: an object of those of the
// top-level `columns` that it has, as JSON (strings, numbers, booleans, lists, structs), in the file's order of rows;
// nulls are left out. One row group is unpacked at a time. Throws Error(kModel) beginning with `name`: no parquet file,
// a damaged one, one without any of the columns, values that JSON has nothing for, strings that are no UTF-8 or hold a
// zero byte; and for every file where reads_parquet() is false.
void for_each_parquet_row(std::string_view contents, const std::string& name, std::span<const std::string_view> columns,
                          const std::function<void(OrderedJson row, size_t number)>& visit);

}  // namespace bw::io
