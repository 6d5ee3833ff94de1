#!/usr/bin/env python3
"""Writes tests/fixtures/parquet: small files in the ways that datasets come.

Needs pyarrow (made with 26.0.1):  pip install pyarrow;  tools/make_parquet_fixtures.py
"""
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

FOLDER = Path(__file__).resolve().parent.parent / "tests" / "fixtures" / "parquet"


def write(name, table, **options):
    pq.write_table(table, FOLDER / f"{name}.parquet", **options)


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    # Several row groups; rows without a text; a column that nobody asks for.
    texts = [f"Text {i}: caf\u00e9 {'long ' * i}" for i in range(10)]
    texts[3] = None
    table = pa.table({"id": list(range(10)), "text": texts})
    write("text", table, row_group_size=4, compression="snappy")
    write("zstd", table, row_group_size=4, compression="zstd")
    write("large", table.set_column(1, "text", table["text"].cast(pa.large_string())), compression="gzip")
    write("categories", pa.table({"text": pa.array(["one", "two", "one", None]).dictionary_encode()}))
    messages = [[{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "4"}],
                [{"role": "user", "content": "Hello"}], None]
    kind = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))
    write("messages", pa.table({"messages": pa.array(messages, kind)}))
    turns = [[{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello"}]]
    kind = pa.list_(pa.struct([("from", pa.string()), ("value", pa.string())]))
    write("conversations", pa.table({"conversations": pa.array(turns, kind)}))
    write("rows", pa.table({"token_ids": pa.array([[1, 2, 3], [4, 5, 6]], pa.list_(pa.int32())),
                            "source": ["a", "b"]}))
    kind = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string()), ("turn", pa.int8()), ("votes", pa.uint8())]))
    write("small_numbers", pa.table({"messages": pa.array(
        [[{"role": "user", "content": "Hi", "turn": -1, "votes": 255}]], kind)}))
    write("other", pa.table({"content": ["a"], "label": [1]}))
    write("numbers", pa.table({"text": [1, 2]}))
    write("binary", pa.table({"text": pa.array([b"a"], pa.binary())}))
    write("nulls", pa.table({"text": pa.array([None, None], pa.string())}))
    write("zero", pa.table({"text": ["fine", "a\0b"]}))


if __name__ == "__main__":
    main()
