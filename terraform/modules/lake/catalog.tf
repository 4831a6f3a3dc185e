# Databases alone: the jobs make the tables in them, by the contracts and by the definitions.
resource "aws_glue_catalog_database" "this" {
  for_each = toset(concat([var.namespace], var.more_databases))

  name         = each.key
  description  = each.key == var.namespace ? "Tables of tailrace, ${var.context.name}" : "More tables of ${var.context.name}"
  location_uri = "s3://${local.names["lake"]}/${var.warehouse_prefix}/${each.key}"

  # IAM decides who reads a table, and not Lake Formation's grants beside it.
  create_table_default_permission {
    permissions = ["ALL"]
    principal {
      data_lake_principal_identifier = "IAM_ALLOWED_PRINCIPALS"
    }
  }
}

resource "aws_glue_data_catalog_encryption_settings" "this" {
  count = var.encrypt_catalog ? 1 : 0

  data_catalog_encryption_settings {
    connection_password_encryption {
      aws_kms_key_id                       = var.kms_key_arn
      return_connection_password_encrypted = true
    }
    encryption_at_rest {
      catalog_encryption_mode = "SSE-KMS"
      sse_aws_kms_key_id      = var.kms_key_arn
    }
  }
}
