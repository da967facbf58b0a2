"""The pages, held to what they say."""
