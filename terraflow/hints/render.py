"""Prompt templates to prompts."""
