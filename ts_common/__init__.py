"""Words and rules that all sides share; imports nothing of ours."""
