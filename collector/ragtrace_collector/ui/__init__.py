"""The page: from a bad day to the wrong claim, over an index, a source of content, and reviews."""
