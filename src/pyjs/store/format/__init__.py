"""The bytes of files: records, forms of segments, metadata, layout."""
