"""Tables of plain files, Parquet or JSON lines, in any store. The ledger makes each row appear once."""
