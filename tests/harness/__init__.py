"""The plane as a black box: a real process on a data folder of its own, its callers, and the models behind it."""
