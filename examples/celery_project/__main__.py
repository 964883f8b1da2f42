"""Sends two tasks, and waits for the result of one."""

from examples.celery_project.tasks import charge, remind

remind.apply_async((1,), countdown=7 * 86_400)  # the broker holds it for a week
print(charge.apply_async((1, 1999), priority=9).get(timeout=30))
