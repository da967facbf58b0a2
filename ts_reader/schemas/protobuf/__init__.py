"""Protobuf: schemas as descriptors, their Arrow types, and messages as values."""
