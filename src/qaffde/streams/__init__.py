"""Rows that are read a block at a time: files, memory-mapped arrays, data sets, iterators."""

from qaffde.streams.blocks import Block, Chunks
from qaffde.streams.chunked import LARGE, as_chunks, chunks

__all__ = ["LARGE", "Block", "Chunks", "as_chunks", "chunks"]
