"""Read messages whose schemas are in a registry: Avro and Protobuf in Confluent's wire format."""
