"""Write the table of docs/configuration-file.md from the settings, so that the page cannot fall behind the code.

python scripts/make_settings_table.py
"""

from pathlib import Path

from glidepath.apps.cli.settings_schema import markdown_table

PAGE = Path(__file__).resolve().parent.parent / "docs" / "configuration-file.md"
BEGIN = "<!-- begin: made by `glidepath config table` -->"
END = "<!-- end -->"


def main() -> None:
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n\n{markdown_table()}\n\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
