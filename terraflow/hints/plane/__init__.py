"""What a plane's fleets use of route hints: the port `ports.hints`, kept.

Who is asked: `inside` (this process) or `client` (any server of the contract, given up by `breaker` while it does not
answer), both behind `guarded`. How a prompt is known: by the engines' blocks (`tokenized`), or by its text (`content`).
"""
