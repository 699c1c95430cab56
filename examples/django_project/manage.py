"""A Django project that keeps the orders of a topic as rows: `consume_orders` is a management command of its app.

    tidelog topic create orders --partitions 3
    pip install django
    python examples/django_project/manage.py migrate --run-syncdb
    python examples/django_project/manage.py consume_orders

`DATABASE` names the SQLite file, unless it is `orders.sqlite3`. A project of yours needs the folder `orders` alone.
"""

import os
import sys

from django.conf import settings
from django.core.management import execute_from_command_line

settings.configure(
    INSTALLED_APPS=["orders"],
    DATABASES={
        "default": {"ENGINE": "django.db.backends.sqlite3", "NAME": os.environ.get("DATABASE", "orders.sqlite3")}
    },
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    USE_TZ=True,
)

if __name__ == "__main__":
    execute_from_command_line(sys.argv)
