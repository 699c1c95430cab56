"""Administration over Kafka's protocol: one function for each call, which takes a request of kio's and returns a tree.

Here live the calls that change the cluster, or show how it is set up. They ask the controller by the commands that HTTP
asks it by, with the same rights, shares and lines of the audit log. An item of a request has its own outcome: what is
wrong with one is no fault of the others.
"""
