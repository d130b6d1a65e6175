"""Rewrites errors, which name Python arguments, in the command line's words."""

from __future__ import annotations

import re

_SAID: tuple[tuple[str, str], ...] = (
    (r'if_exists="ignore" \(in SQL IF NOT EXISTS\)', "--if-not-exists"),
    (r'if_exists="ignore"', "--if-not-exists"),
    (r'if_missing="ignore"', "--if-exists"),
    (r"with add_column\(\)", "with strom table alter TABLE --add name:type"),
    (r'tier="(hot|lake)"', r"--tier \1"),
    (r"columns=\['([^']*)'\]", r"--columns \1"),
    (r"partitions=", "--partition"),
    (r"\b(at|start|end|limit|columns|where|tier)=", r"--\1"),
    (r"strom\.col\('price'\) > 10", "id = 7"),
    (r"\b(append|upsert|delete|scan|tail|changelog|lookup)\(\)", r"strom \1"),
    (r"\blookup_many\(\)", "strom lookup"),
    (r"lookup_prefix\(\)", "strom lookup --prefix"),
    (r"round it yourself: column\.cast\(pa\.[^;]*\)", "round it in the file"),
    (r"cast it first: column\.cast\(pa\.[^;]*\)", "change it in the file"),
    (r"say which zone it is in: pc\.assume_timezone\([^)]*\)", "say in the file which zone it is in"),
    (r"choose a zone for it: pc\.local_timestamp\(column\)", "choose a zone for it in the file"),
    (r"cut the time off: column\.cast\(pa\.date32\(\), safe=False\)", "cut the time off in the file"),
    (r"(en|de)code it: column\.cast\(pa\.\w+\(\)\)", r"\1code it in the file"),
    (r"parameters=\{'(\w+)': …\}", r"--param \1=…"),
)


def in_words(text: str) -> str:
    """The text with options and commands where it names arguments and methods."""
    for python, command in _SAID:
        text = re.sub(python, command, text)
    return text
