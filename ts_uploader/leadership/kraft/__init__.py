"""Leadership from a KRaft broker and its disk."""
