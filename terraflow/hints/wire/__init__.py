"""The wire's messages: `inferencecache.proto`, what protoc makes of it (`make fix` writes it anew), and a client."""
