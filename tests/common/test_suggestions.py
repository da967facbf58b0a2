from ts_common.suggestions import nearest


def test_a_similar_name_is_suggested_with_its_label() -> None:
    """The label is the prefix that the user has to write in front of the name."""
    assert nearest("acl.s", ["acl", "region"], "s3.") == "; did you mean s3.acl?"
    assert nearest("regoin", ["acl", "region"]) == "; did you mean region?"


def test_no_name_is_suggested_for_an_unrelated_one() -> None:
    """A wrong suggestion would be worse than none."""
    assert nearest("password", ["acl", "region"]) == ""
    assert nearest("acl", []) == ""
