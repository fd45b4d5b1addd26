"""Prompts to token ids as an engine makes them: a model's chat template, then its tokenizer.

No text is kept: nothing here remembers what it was given.
"""
