"""The worked example of tables: uploads that become symbols."""
