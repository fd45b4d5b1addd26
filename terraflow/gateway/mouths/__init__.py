"""One file an API shape: each only translates between its wire form and the neutral request and outcome."""
