"""Rows that are read a block at a time: memory-mapped arrays, Parquet data sets, iterators."""

from qaffde.streams.blocks import Block
from qaffde.streams.chunked import Chunks, as_chunks, chunks

__all__ = ["Block", "Chunks", "as_chunks", "chunks"]
