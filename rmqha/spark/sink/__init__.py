"""``df.write.format("rmqha")``, ``df.writeStream.format("rmqha")``: rows as messages, through the client library.

The only room of ``spark`` that sends, and so the only one with an event loop; it is loaded when something is written.
"""
