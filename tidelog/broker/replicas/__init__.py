"""The replicas of this broker, kept in line with the metadata: roles, retention, removal of directories."""
