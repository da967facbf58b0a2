"""What an archive costs a month, and what a change of it would do."""
