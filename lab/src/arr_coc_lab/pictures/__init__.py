"""Real pictures out of Debian, PyPI and npm packages, with natural questions and evidence boxes."""
