"""Reading and writing of base models and allocators: folders, result files and the Hub."""
