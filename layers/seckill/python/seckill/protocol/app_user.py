"""The database user of the functions: authenticated by IAM, and allowed only what the protocol does."""

from seckill.adapters.mysql import Database


def grant_app_user(database: Database, user: str) -> None:
    """Make `user` if there is none, and let it SELECT, INSERT and UPDATE the books; `database` is the master's.

    Running it again changes nothing. Raises DatabaseError: on a server without RDS's plugin, when the user is missing.
    """
    if database.row("app_user.exists", user) is None:
        database.execute("app_user.create", user)
    for table in database.rows("app_user.tables"):
        # A table's name cannot be an argument of a statement; these come from the server itself.
        database.run_script(f"GRANT SELECT, INSERT, UPDATE ON `{table['name']}` TO `{user}`@`%`;")
