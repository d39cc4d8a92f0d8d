"""What AgentDojo needs to run here."""

# Only what its suites import: no more has to be fetched before the first task.
PACKAGES = (
    "agentdojo==0.1.35",
    "annotated-types",
    "deepdiff==8.6.1",
    "docstring-parser",
    "email-validator",
    "idna",
    "msgspec",
    "orderly-set",
    "pydantic==2.12.5",
    "pydantic-core==2.41.5",
    "pyyaml",
    "rich",
    "typing-extensions",
    "typing-inspection",
)
