"""Tests for a second device: see ``device``. Each file runs in a process of its own (``tests.test_another_device``)."""
