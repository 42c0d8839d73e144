"""Names as `weir` writes them where a tool would print them as they are."""

import re


def escape(name):
    """Returns a name with escapes for the characters that could control a terminal or change the direction."""

    def escape_character(match):
        character = match[0]
        if character in "\n\r\t":
            return {"\n": "\\n", "\r": "\\r", "\t": "\\t"}[character]
        return f"\\x{ord(character):02x}" if ord(character) < 256 else f"\\u{{{ord(character):x}}}"

    return re.sub("[\0-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]", escape_character, name)
