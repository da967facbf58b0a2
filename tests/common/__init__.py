"""ts_common: the words and rules that all sides share."""
