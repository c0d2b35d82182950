"""What the crash tests share."""

import tempfile

import pytest


@pytest.fixture
def own_temporary_files(tmp_path, monkeypatch):
    """Working folders of this test stand below its own folder, also those of its processes."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
