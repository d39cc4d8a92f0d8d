"""The conformance kit: one contract class for each extension point. Derive from it in your own tests.

Every clause is one test and has a number; its docstring is the clause. Nothing here is loaded unless it is imported.
Ask pytest to explain failed asserts before you import a contract:

    import pytest
    pytest.register_assert_rewrite("glidepath.conformance")
"""
