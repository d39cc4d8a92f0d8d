"""An IPv6 address that stands for an IPv4 one reaches what that one does."""

import pytest

from glidepath.values import is_public, read_address


@pytest.mark.parametrize(
    ("text", "reached"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("::10.0.0.1", "10.0.0.1"),
        ("::ffff:0:10.0.0.1", "10.0.0.1"),
        ("64:ff9b::10.0.0.1", "10.0.0.1"),
        ("2002:a00:1::", "10.0.0.1"),
        ("::1", "::1"),
        ("::", "::"),
        ("fe80::1%eth0", "fe80::1"),
        ("64:ff9b:1::1", "64:ff9b:1::1"),
        ("fec0::1", "fec0::1"),
        ("ff0e::1", "ff0e::1"),
    ],
)
def test_a_private_address_is_private_in_every_form(text, reached):
    address = read_address(text)
    assert str(address) == reached
    assert not is_public(address)


@pytest.mark.parametrize("text", ["1.1.1.1", "::ffff:1.1.1.1", "64:ff9b::1.1.1.1", "2606:4700:4700::1111"])
def test_a_public_address_is_public_in_every_form(text):
    assert is_public(read_address(text))


@pytest.mark.parametrize("text", ["", "host", "1.2.3", "1.2.3.4.5", ":::"])
def test_what_is_no_address_is_a_value_error(text):
    with pytest.raises(ValueError, match="does not appear to be"):
        read_address(text)
