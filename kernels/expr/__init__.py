"""Types, expressions and schemas: the words that all layers share."""
