"""The wire's messages: `inferencecache.proto`, and what protoc makes of it (`make fix` writes it anew)."""
