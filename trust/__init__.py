"""Long runs that show the promises: `make trust`. Each module has a `main()` that exits with 1 if one fails."""
