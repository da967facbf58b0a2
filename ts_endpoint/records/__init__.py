"""Record batches that the endpoint encodes, where stored bytes do not have what a reader returns."""
