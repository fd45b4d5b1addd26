"""What writes the generated pages: one module a page, each a function without arguments that returns the text."""
