"""Raw tables as they come: files, lines, cells and crosswalks."""
