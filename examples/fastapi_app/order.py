"""What travels from the web app to the worker."""

from pydantic import BaseModel, Field

QUEUE = "orders"


class Order(BaseModel):
    item: str = Field(min_length=1)
    count: int = Field(gt=0)
    express: bool = False
