"""Read messages that name a schema in a registry: Avro and Protobuf in Confluent's wire format."""
