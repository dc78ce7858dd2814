"""Write the page of what is supported."""

from __future__ import annotations

from .page import PAGE, page

if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
