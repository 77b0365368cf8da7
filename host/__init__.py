"""What serves, drives and checks the guest from outside the page: command line, server, oracle, page."""
