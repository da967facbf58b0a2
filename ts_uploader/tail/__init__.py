"""The live tail: records that no closed segment has yet (tail rules of docs/protocol.md)."""
