"""Just enough of a Django project: `python -m django runserver --settings
examples.django_shop.settings`."""

import os

ALLOWED_HOSTS = ["127.0.0.1", "testserver"]
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.environ.get("SHOP_DATABASE", "shop.sqlite3"),
    }
}
ROOT_URLCONF = "examples.django_shop.urls"
SECRET_KEY = os.urandom(16).hex()
USE_TZ = True
