"""The policies that headway is compared with, as they really work; see `docs/policies.md`."""
