"""Tests of the pages; a package, since contrib has a test_pages too."""
